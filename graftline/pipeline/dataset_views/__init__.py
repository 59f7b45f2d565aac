"""What the commands `graftline datasets …` do and show: each a function that returns plain values.

The stages themselves are in `graftline.pipeline.stages`, what leaves a checkout in `graftline.datasets.dvc` and
`graftline.datasets.publishing`.
"""
