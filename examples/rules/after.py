def total(client, url):
    rows = client.fetch(url, timeout=3)
    return len(rows)
