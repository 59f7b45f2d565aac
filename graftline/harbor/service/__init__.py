"""The service: deployments, builds, instances, rollouts and jobs, all of their state in one database."""
