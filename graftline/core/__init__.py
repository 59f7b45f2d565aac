"""What everything else stands on: artifacts and their records, configuration, errors, digests, files, processes, secrets."""
