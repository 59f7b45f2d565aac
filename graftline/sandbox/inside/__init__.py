"""Programs that run inside the jail. They import as little as they can: what is not there cannot be used against it."""
