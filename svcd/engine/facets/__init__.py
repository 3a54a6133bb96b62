"""What the counted documents hold under chosen attributes: distribution, statistics, and search among values."""
