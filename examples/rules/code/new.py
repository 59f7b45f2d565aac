print(session.fetch(HOME, timeout=60))
