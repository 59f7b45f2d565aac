"""Harbor: environments as versioned deployments with an instance per seed, run locally and by a service alike."""
