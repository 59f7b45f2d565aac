"""The hostile suite: programs and actions that try to break out, run against every jail; `suite.run_suite` is the way in.

A case is a text in a table, one module per group. `facts` puts onto the machine what the cases try to reach and looks
afterwards what they reached; `judging` says what that means; `bench` runs a case against one jail or one sandbox.
"""
