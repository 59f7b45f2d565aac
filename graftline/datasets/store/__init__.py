"""Where recipes of training find what they train on: the port `DatasetStore`, in a folder or in memory."""
