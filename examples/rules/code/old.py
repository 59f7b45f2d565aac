print(session.get(HOME, timeout=60))
