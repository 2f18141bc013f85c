"""Whether runs are told their cause, in how many bytes and seconds, and what that costs them."""
