"""What is kept on disk: the only SQL of svcd."""
