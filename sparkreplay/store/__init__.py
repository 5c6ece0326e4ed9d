"""A broker's store as a reader sees it: where its bytes lie, its segments and epochs, and up to where it is committed."""
