"""Ranking: the rules, and the bucket sort that runs them (docs/ranking.md)."""
