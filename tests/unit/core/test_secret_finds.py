"""What looks like a secret, told without its value."""

import random
import re
import string

import pytest

from graftline.core.secret_finds import find_in_file, finds_in, is_secret_name, kind_of, redact

ALPHABET = string.ascii_letters + string.digits


def letters(count: int, seed: int = 7) -> str:
    return "".join(random.Random(seed).choices(ALPHABET, k=count))


# made at run time, so that no scanner takes this file for a leak
SECRETS = {
    "sk-" + letters(48): "a key of a language model (sk-…)",
    "sk-proj-" + letters(40) + "_" + letters(20): "a key of a language model (sk-…)",
    "sk-ant-api03-" + letters(80) + "-AA": "a key of a language model (sk-…)",
    "sk-or-v1-" + "0123456789abcdef" * 4: "a key of a language model (sk-…)",
    "tml-" + letters(40): "a key of Tinker (tml-…)",
    "hf_" + letters(34): "a token of Hugging Face (hf_…)",
    "ghp_" + letters(36): "a token of GitHub (gh…_…)",
    "ghs_" + letters(36): "a token of GitHub (gh…_…)",
    "github_pat_" + letters(22) + "_" + letters(59): "a token of GitHub (github_pat_…)",
    "glpat-" + letters(20): "a token of GitLab (glpat-…)",
    "AKIA" + letters(16).upper(): "an access key of AWS",
    "AIza" + letters(35): "a key of Google (AIza…)",
    "xoxb-" + "123456789012-" + letters(24): "a token of Slack (xox…)",
    "xoxp-" + "123456789012-" + letters(24): "a token of Slack (xox…)",
    ".".join(["eyJ" + letters(30), "eyJ" + letters(60), letters(43)]): "a signed token (JWT)",
    "-----BEGIN RSA PRIVATE " + "KEY-----\n" + letters(64): "a private key",
    "-----BEGIN " + "PRIVATE KEY-----\n" + letters(64): "a private key",
    "-----BEGIN OPENSSH PRIVATE " + "KEY-----": "a private key",
    "-----BEGIN PGP PRIVATE KEY " + "BLOCK-----": "a private key",
}


@pytest.mark.parametrize(("secret", "kind"), SECRETS.items(), ids=range(len(SECRETS)))
def test_a_secret_is_told_by_its_shape_alone_and_within_a_text(secret: str, kind: str) -> None:
    line = f'first\nkey = "{secret}"\n'
    # a line break of a text in a program is a backslash and a letter
    escaped = f'{{"key": "first\\n{secret}"}}'
    assert [kind_of(secret), kind_of(line), kind_of(escaped)] == [kind] * 3
    assert find_in_file(line.encode(), "a.py") == f"a.py, line 2: holds {kind}"


@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
def test_a_secret_is_taken_out_of_code_and_of_regular_expressions(secret: str) -> None:
    for text in (secret, re.escape(secret).replace("\\ ", " ")):
        assert redact(f'first\nkey = "{text}"') in ('first\nkey = "[secret]"', 'first\nkey = "[secret]')


def test_a_private_key_is_taken_out_with_its_headers_and_nothing_beside_it() -> None:
    name, body = "RSA PRIVATE " + "KEY-----", letters(200)
    key = f"-----BEGIN {name}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n{body}\n-----END {name}"
    assert redact(f"a = 1\n{key}\nb - c\n") == "a = 1\n[secret]\nb - c\n"
    assert redact(re.escape(key).replace("\\ ", " ")) == "[secret]"


def test_of_two_secrets_that_begin_alike_nothing_is_left() -> None:
    secret = "hf_" + letters(30)
    assert redact(f"{secret} {secret}{letters(9, 8)}") == "[secret] [secret]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task-" + letters(40),  # `sk-` within a word
        "html-" + letters(40),
        "sk-circle-fade-dot-and-a-cube-grid",  # names of classes have no long run of letters
        "sk-" + letters(12),
        "AKIA" + letters(15).upper(),
        "AKIA" + letters(17).upper(),
        "hf_hub_download_of_a_repository_of_models",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "eyJhbGciOiJIUzI1NiJ9",  # a header alone
    ],
)
def test_what_only_begins_like_a_secret_is_none(text: str) -> None:
    assert kind_of(text) is None


@pytest.mark.parametrize(
    "text", ["sk-" + "x" * 40, "hf_" + "X" * 34, "github_pat_" + "x" * 40, "AKIAIOSFODNN7" + "EXAMPLE"]
)
def test_a_stand_in_is_refused_as_a_value_and_allowed_in_a_file(text: str) -> None:
    assert kind_of(text) is not None
    assert find_in_file(text.encode(), "README.md") == ""


def test_binary_files_are_not_looked_at_and_utf_16_is_text() -> None:
    secret = "hf_" + letters(34)
    assert find_in_file(b"\0" + secret.encode(), "a.bin") == ""
    text = f"a\nb {secret}\n".encode("utf-16")
    assert find_in_file(text, "a.txt") == "a.txt, line 2: holds a token of Hugging Face (hf_…)"


def test_values_are_looked_through_at_any_depth_and_never_shown() -> None:
    secret = "ghp_" + letters(36)
    value = {"a": [1, {"b": secret}], "OPENAI_API_KEY": "anything", secret: 1, "needs_openai_api_key": True}
    finds = sorted(finds_in(value, "metadata"))
    assert finds == [
        "metadata, a name in it: holds a token of GitHub (gh…_…)",
        "metadata['OPENAI_API_KEY']: holds a secret, by its name",
        "metadata['a'][1]['b']: holds a token of GitHub (gh…_…)",
    ]


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    value: list[object] = []
    for _ in range(100):
        value = [value]
    with pytest.raises(ValueError, match="metadata: is nested deeper than 64 levels"):
        list(finds_in(value, "metadata"))


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "MY_OPENAI_API_KEY_2", "anthropic_api_key", "AZURE_OPENAI_API_KEY", "GOOGLE_API_KEY",
        "COHERE_API_KEY", "HUGGINGFACE_API_KEY", "SYNTH_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY", "HF_TOKEN",
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "DB_PASSWORD", "PASSWORD",
        "SLACK_TOKEN", "CLIENT_SECRET", "MY_APIKEY", "deploy-key",
    ],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["MAX_TOKENS", "MONKEY", "TOKENIZER", "KEYBOARD", "AWS_REGION", "MODEL", "PATH"])
def test_names_of_other_variables_are_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "piece",
    [b"sk-", b"eyJ", b"eyJ.", b"eyJaaaaaaaa.", b"-----BEGIN ", b"-----BEGIN A A ", b"xoxb-", b"AKIA", b"hf_", b"a"],
)
def test_hostile_text_is_looked_through_in_time_that_grows_with_its_length(piece: bytes) -> None:
    # quadratic time would be hours, and the limit of the test is far below
    assert find_in_file(piece * (1_000_000 // len(piece)), "a.txt") == ""
