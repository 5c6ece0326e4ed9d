"""Those that a broker calls by itself: name servers and its master."""
