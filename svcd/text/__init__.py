"""Text analysis: from text to tokens, normalized terms and their positions (docs/text-analysis.md)."""
