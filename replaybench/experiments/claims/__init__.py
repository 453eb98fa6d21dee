"""Published claims about experience selection, as data, and what runs say of them."""
