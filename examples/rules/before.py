def total(client, url):
    rows = client.get(url, timeout=3)
    return len(rows)
