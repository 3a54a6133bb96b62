"""One search from end to end: keyword search, federation, joins, and the formatting of hits."""
