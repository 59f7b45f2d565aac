"""What runs a deployment: a jail of this machine, a container engine, a cloud, or a table in memory."""
