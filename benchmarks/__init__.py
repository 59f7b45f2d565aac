"""One runnable file per claim; each prints one line of JSON: name, figures, peers, machine."""
