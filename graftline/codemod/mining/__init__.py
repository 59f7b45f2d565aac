"""The mining of histories: small changes, what rules are about, and how they are tried."""
