"""Files fetched from elsewhere: from servers, registries and folders, whole and verified or not at all."""
