"""What stands between an agent and its model: calls are forwarded and recorded, budgets kept, keys not shown.

`proxy.py` says who is answered, `exchange.py` forwards, `sessions.py` has who may ask and for how much, `interfaces.py` reads the three interfaces that agents speak,
`calls.py` is the record of a call, and `trajectories.py` what is made of records: ATIF, and rows to train on.
"""
