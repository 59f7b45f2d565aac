"""Programs that want to speak to something outside: by addresses, by names, through the kernel."""

from tests.security.hostile.cases import in_group

_GREET = """
def greet(address, family=socket.AF_INET, protocol=0):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as link:
        link.settimeout(2)
        link.connect((address, FACTS["tcp_port"]))
        link.sendall(MARKER.encode())
    return "connected"
"""

NETWORK_CASES = in_group(
    "network",
    {
        "tcp_loopback": """
        for address in ("127.0.0.1", "0.0.0.0", "localhost"):
            attempt(address, greet, address)
        attempt("mapped address", greet, "::ffff:127.0.0.1", socket.AF_INET6)
        """,
        # two ways of TCP that rules for `connect` have been known to forget
        "tcp_multipath": 'attempt("connect", greet, "127.0.0.1", socket.AF_INET, 262)',
        "tcp_fast_open": """
        def greet():
            with socket.socket() as link:
                link.settimeout(2)
                link.sendto(MARKER.encode(), 0x20000000, ("127.0.0.1", FACTS["tcp_port"]))
            return "connected"

        attempt("connect while sending", greet)
        """,
        "udp_datagram": """
        def send():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
                link.sendto(MARKER.encode(), ("127.0.0.1", FACTS["udp_port"]))
            return TRIED

        attempt("a datagram", send)
        """,
        "name_lookup": """
        def look_up():
            signal.alarm(3)
            return socket.getaddrinfo("example.com", 80)[0][4]

        attempt("look up a name", look_up)
        """,
        "unix_socket_by_path": """
        def connect(kind):
            with socket.socket(socket.AF_UNIX, kind) as link:
                link.settimeout(2)
                link.connect(FACTS["socket_path"])
            return "connected"

        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            attempt(kind.name, connect, kind)
        """,
        "unix_socket_by_abstract_name": """
        def connect():
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(2)
                link.connect("\\0" + FACTS["abstract_name"])
            return "connected"

        attempt("connect", connect)
        """,
        "descriptor_to_the_machine": """
        def hand_over():
            with socket.socket(socket.AF_UNIX) as link, open(MARKER, "w") as own:
                link.connect("\\0" + FACTS["abstract_name"])
                socket.send_fds(link, [b"x"], [own.fileno()])
            return "handed over"

        attempt("hand a descriptor to a process outside", hand_over)
        """,
        "raw_sockets": """
        def make(*arguments):
            socket.socket(*arguments).close()
            return "made"

        attempt("raw", make, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        attempt("raw, version 6", make, socket.AF_INET6, socket.SOCK_RAW, 58)
        attempt("packets", make, 17, socket.SOCK_RAW, 0x0300)
        attempt("the kernel", make, socket.AF_NETLINK, socket.SOCK_RAW)
        """,
        "interfaces": """
        def seen():
            return [name for _, name in socket.if_nameindex() if name != "lo"]

        attempt("ask the kernel", seen)
        attempt("ask the file system", lambda: [name for name in os.listdir("/sys/class/net") if name != "lo"])
        """,
        # no network namespace covers it: it reaches the host of a virtual machine
        "virtual_machine_sockets": """
        def make():
            socket.socket(40, socket.SOCK_STREAM).close()
            return "made"

        attempt("AF_VSOCK", make)
        """,
        "kernel_cryptography": """
        def make():
            with socket.socket(38, socket.SOCK_SEQPACKET) as link:
                link.bind(("hash", "sha256"))
            return "made"

        attempt("AF_ALG", make)
        """,
    },
    shared=_GREET,
)
