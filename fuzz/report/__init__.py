"""Reports: consumers of a campaign's events. The campaign knows none of them."""
