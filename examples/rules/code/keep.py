value = settings.get("name")
