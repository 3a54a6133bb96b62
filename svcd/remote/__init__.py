"""Every call to another host: where it may go, how it is made, what is told unasked."""
