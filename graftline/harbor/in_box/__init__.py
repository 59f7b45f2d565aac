"""Programs that run inside boxes, where there is Python 3.10 or later but no graftline.

Standard library and relative imports only: `task_format/importing.py` lays this folder into contexts as it is, so what
grades in a box is what is tested here.
"""
