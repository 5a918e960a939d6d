"""
Finds signs of a secret in files, settings and command lines, so that an import leaves them out. A false positive is better than
a secret in a manifest.

A text has a sign if it has the form of a secret, such as a private key, or if it is the value of a setting whose name indicates
a secret. Such settings are found in files of any format.
"""

from __future__ import annotations

import json
import re

from ccm_agent.model.formats.patterns import lazy_pattern

PRIVATE_BITS = 0o004
"""The read permission for other users. A file without it is private, because its owner has excluded some users."""

_WIDE = lazy_pattern(r"\A(?:\xff\xfe|\xfe\xff)|(?:[\x20-\x7e]\0{1,3}){8}|(?:\0{1,3}[\x20-\x7e]){8}")
"""A text in UTF-16 or UTF-32: its byte order mark, or eight characters of ASCII in a row."""
_SETTING = "contains what looks like a password or token"


# ---- texts with the form of a secret ----

_TOKENS = {
    **{word: rf"{word}[A-Za-z0-9]{{36}}" for word in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_")},
    "github_pat_": r"github_pat_[A-Za-z0-9_]{22}",
    **{
        word: rf"{word}[A-Za-z0-9_-]{{16}}"
        for word in ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glagent-")
    },
    "glsa_": r"glsa_[A-Za-z0-9]{32}",
    "glc_eyj": r"glc_eyJ[A-Za-z0-9+/=]{20}",
    "xox": r"xox[abeoprs]-[A-Za-z0-9-]{10}",
    "xapp-": r"xapp-[A-Za-z0-9-]{10}",
    "k_live_": r"[srw]k_live_[A-Za-z0-9]{10}",
    "k_test_": r"[srw]k_test_[A-Za-z0-9]{10}",
    "whsec_": r"whsec_[A-Za-z0-9+/=]{16}",
    "aiza": r"AIza[A-Za-z0-9_-]{35}",
    "gocspx-": r"GOCSPX-[A-Za-z0-9_-]{20}",
    "ya29.": r"ya29\.[A-Za-z0-9_-]{20}",
    "pypi-age": r"pypi-AgE[A-Za-z0-9_-]{16}",
    "sg.": r"SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{16}",
    "sk-": r"sk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_-]{32}",
    "hf_": r"hf_[A-Za-z]{34}",
    "_v1_": r"do[opr]_v1_[0-9a-f]{64}",
    **{f"hv{one}.": rf"hv{one}\.[A-Za-z0-9_-]{{24}}" for one in "sbr"},
    "dckr_": r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20}",
    "tskey-": r"tskey-[a-z]{3,12}-[A-Za-z0-9]{8}",
    "shp": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    ":aa": r"(?:bot)?[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    "akia": r"AKIA[A-Z0-9]{16}\b",
    "asia": r"ASIA[A-Z0-9]{16}\b",
}
"""The forms of tokens, by a part in small letters."""
_COMMANDS = {
    "mysql": r"mysql[a-z_-]{0,20}\b[^\n]{0,200}?[ \t]-p[^\s-]",
    "mariadb": r"mariadb[a-z_-]{0,20}\b[^\n]{0,200}?[ \t]-p[^\s-]",
    "sshpass": r"sshpass\b[^\n]{0,80}?[ \t]-p[ \t]{0,8}[^\s$]",
    "redis-cli": r"redis-cli\b[^\n]{0,200}?[ \t](?:-a|--pass)[ \t]{1,8}[^\s$-]",
    "mongo": r"mongo(?:sh|dump|restore|import|export|stat)?\b[^\n]{0,200}?[ \t]-p[ \t]{1,8}[^\s$-]",
    "mosquitto_": r"mosquitto_(?:pub|sub|rr)\b[^\n]{0,200}?[ \t]-P[ \t]{1,8}[^\s$-]",
    "ldap": r"ldap(?:add|compare|delete|exop|modify|modrdn|passwd|search|whoami)\b[^\n]{0,200}?[ \t]-w[ \t]{0,8}[^\s$-]",
    **{
        word: rf"{word}\b[^\n]{{0,200}}?[ \t]-U[ \t]{{0,8}}[^\s%$]{{1,64}}%[^\s%]"
        for word in ("smbclient", "rpcclient", "mount.cifs", "net ads", "net rpc")
    },
    **{
        word: rf"{word}\b[^\n]{{0,200}}?[ \t](?:-u|--(?:proxy-)?user)[ \t=]{{0,8}}[\"']?[^\s:,\"'$]{{1,64}}[:,][^\s\"'$]"
        for word in ("curl", "lftp")
    },
    "ipmitool": r"ipmitool\b[^\n]{0,200}?[ \t]-P[ \t]{0,8}[^\s$-]",
    **{
        f"{word} login": rf"{word} login\b[^\n]{{0,200}}?[ \t]-p[ \t=]{{0,8}}[^\s$-]"
        for word in ("docker", "podman", "buildah", "skopeo")
    },
    "chpasswd": (
        r"(?:(?:echo|printf)[ \t][^\n|]{0,200}:[^\n|]{1,100}\|[ \t]{0,8}(?:sudo[ \t]{1,8})?chpasswd\b"
        r"|chpasswd\b[^\n<]{0,40}<<(?:<[ \t]{0,8}[\"']?|[^\n]{1,40}\n)[^\s:$]{1,64}:[^\s$])"
    ),
    **{
        word.lower(): rf"(?:echo|printf)[ \t]{{1,8}}[\"']?[^\s|\"'$][^\n|]{{0,200}}\|[ \t]{{0,8}}{word}\b"
        for word in ("sudo -S", "kinit")
    },
    "identified": r"(?i:identified)[ \t]{1,8}(?:(?i:with)[ \t]{1,8}\S{1,64}[ \t]{1,8})?(?i:by|as)[ \t]{1,8}[\"']",
}
"""Command lines with a password, by the program."""
_HOST = r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63}){1,10}"
_LINE = r"(?m:^)[ \t]{0,40}"
_SIGNS = (
    (
        "a private key",
        ("private", "begin ", "age-secret", "age-plugin", "putty-user", "secret key", "ls0tls1crudj"),
        lazy_pattern(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY"
            r"|-----BEGIN OpenVPN Static key|AGE-SECRET-KEY-1|AGE-PLUGIN-[A-Z0-9-]{1,40}1|PuTTY-User-Key-File-[0-9]"
            r"|untrusted comment: [^\n]{0,40}secret key|Private-key-format: v[0-9]"
            # Base64 of `-----BEGIN ` and PRIVATE, RSA, EC, DSA, OPENSSH or ENCRYPTED
            r"|LS0tLS1CRUdJTi(?:BQUklWQVRF|BSU0Eg|BFQy|BEU0Eg|BPUEVOU1NI|BFTkNSWVBURU)"
        ),
    ),
    ("a private key", ("kty",), lazy_pattern(r"[\"'][dk][\"']\s{0,40}:\s{0,40}[\"'][A-Za-z0-9_-]{40}")),
    (
        "a token",
        ("eyj",),
        lazy_pattern(r"\beyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{16}"),
    ),
    (
        "a password of PostgreSQL",
        (":",),
        lazy_pattern(r"(?m:^)[^\s:#]{1,255}:(?:\d{2,5}|\*):[^\s:]{1,100}:[^\s:]{1,100}:\S"),
    ),
    (
        "a password of a mail server",
        ("]:", "] ", "@", "smtp", "mail", "relay"),
        lazy_pattern(
            rf"(?m:^)(?:(?:\[[^\]\s]{{1,255}}\](?::\w{{1,10}})?|{_HOST}:\w{{1,10}})[ \t]{{1,40}}[^\s:\[\]]{{1,100}}:[^\s:]"
            rf"|[A-Za-z0-9@._-]{{1,255}}[ \t]{{1,40}}[^\s:@]{{1,64}}@{_HOST}:(?![0-9]{{1,5}}\b)[^\s:/]"
            rf"|(?:smtp|mail|relay|mx)[A-Za-z0-9-]{{0,40}}\.{_HOST}[ \t]{{1,40}}"
            r"(?!(?:[sl]mtp|relay|local|virtual|error):)[^\s:@]{1,64}:[^\s:/])"
        ),
    ),
    *(("a password", (word,), lazy_pattern(rf"\b(?:{form})")) for word, form in _COMMANDS.items()),
    (
        "a password",
        ('-p"', "-p'", "- -p\n", "- -p\r\n"),
        # the value of `-p`, unless it is a number, ports, a protocol or a path
        lazy_pattern(
            r"(?:[\"']-p[\"'][ \t]{0,40},\s{0,40}[\"']|-[ \t]{1,40}[\"']?-p[\"']?\r?\n[ \t]{0,40}-[ \t]{1,40}[\"']?)"
            r"(?![0-9.:\[\]/-]{1,64}(?:/?(?:tcp|udp|sctp))?[\"'\s]|(?:tcp|udp|icmp|all)\b|[./~$%{<]|[a-z]{2,5}://)[^\s\"']"
        ),
    ),
    # forms of netrc, HAProxy, IPsec and SNMP
    (
        "a password",
        ("login",),
        lazy_pattern(
            r"\b(?:machine[ \t]{1,40}\S{1,255}|default)\s{1,40}login\s{1,40}\S{1,255}\s{1,40}password\s{1,40}\S"
        ),
    ),
    ("a password", ("stats",), lazy_pattern(rf"{_LINE}stats[ \t]{{1,40}}auth[ \t]{{1,40}}[^\s:]{{1,64}}:\S")),
    (
        "a password",
        (": psk", ": eap", ": xauth", ": ntlm", ": pin"),
        lazy_pattern(r"(?m:^)[^\n#:]{0,100}:[ \t]{1,40}(?:PSK|EAP|XAUTH|NTLM|PIN)[ \t]{1,40}[^\s%]"),
    ),
    (
        "a password",
        ("community", "com2sec", "createuser", "-server key", "message-digest-key"),
        lazy_pattern(
            rf"{_LINE}(?:(?:(?:r[ow]|trap)community6?|snmp-server[ \t]{{1,40}}community"
            r"|com2sec6?[ \t]{1,40}\S{1,64}[ \t]{1,40}\S{1,64})[ \t]{1,40}(?!public\b)\S"
            r"|createUser[ \t]{1,40}\S{1,64}[ \t]{1,40}(?:MD5|SHA)"
            # routers
            r"|(?:tacacs|radius)-server key[ \t]{1,40}\S"
            r"|(?:ip[ \t]{1,8}ospf[ \t]{1,8})?message-digest-key[ \t]{1,8}[0-9]{1,3}[ \t]{1,8}md5[ \t]{1,8}\S)"
        ),
    ),
    ("a NATS seed", (), lazy_pattern(r"S(?<![A-Za-z0-9_]S)[UAOXNC][A-Z2-7]{56}\b")),
    *(
        ("an access key", (word,), lazy_pattern(rf"(?<![A-Za-z0-9])(?:{form})"))
        for word, form in _TOKENS.items()
    ),
    (
        "an access key",
        ("authorization", "hooks.slack.com/", "/api/webhooks/", "accountkey", "sharedaccess"),
        lazy_pattern(
            r"(?i:authorization[\"']?[ \t:=,]{1,8}[\"']?(?:bearer|basic|token|digest)[ \t]{1,8}[A-Za-z0-9+/=._~-]{6})"
            r"|hooks\.slack\.com/(?:services|workflows|triggers)/[A-Z0-9]{6}|/api/webhooks/[0-9]{10,24}/[A-Za-z0-9_-]{20}"
            r"|(?i:(?:accountkey|sharedaccess(?:key|signature))[ \t]{0,8}[=:][ \t]{0,8}[A-Za-z0-9+/=%&]{16})"
        ),
    ),
    (
        "a password hash",
        ("$", "{", "scram-", "md5", "*", "grub.pbkdf2"),
        lazy_pattern(
            r"\$(?:apr1|2[abxy]|[1567]|sha1|md5|y|gy|argon2i?d?|scrypt|pbkdf2-sha(?:256|512))\$[./A-Za-z0-9$=,+-]{8}"
            r"|\{(?:S?SHA(?:256|384|512)?|S?MD5|CRYPT|PBKDF2[A-Z0-9-]{0,8}|ARGON2I?D?|(?:BLF|SHA(?:256|512))-CRYPT)\}[$A-Za-z0-9+/]{12}"
            r"|\{(?:PLAIN(?:-TRUNC)?|CLEAR(?:TEXT)?)\}\S"
            r"|pbkdf2_sha(?:1|256|512)\$[0-9]{1,8}\$|SCRAM-SHA-(?:1|256)\$[0-9]{1,8}:|md5[0-9a-f]{32}\b"
            r"|grub\.pbkdf2\.sha512\.[0-9]|\*[0-9A-F]{40}\b"
        ),
    ),
    (
        "a password hash",
        (":",),
        # htdigest(1), smbpasswd(5) and crypt(3) of htpasswd(1)
        lazy_pattern(
            r"(?m:^)[^\s:#]{1,64}:(?:[^:\n]{1,64}:[0-9a-f]{32}\r?(?m:$)|[0-9]{1,10}:[0-9A-FX]{32}:[0-9A-FX]{32}:"
            r"|(?=[./0-9A-Z]{0,12}[a-z])(?=[./0-9a-z]{0,12}[A-Z])[./0-9A-Za-z]{13}(?::|\r?(?m:$)))"
        ),
    ),
    (
        "a URL with a password",
        ("://",),
        lazy_pattern(
            r"://(?:[^\s/:@\"'<]{0,200}:(?!\$\{|\{\{|%\(|<|\$[A-Z_]{1,64}@)[^\s/@\"']{1,200}@"
            r"|(?:(?<=(?i:http)://)|(?<=(?i:https)://))[^\s/@\"'<${]{8,200}@)"
        ),
    ),
    (
        "a URL with a password",
        ("@tcp(", "@unix("),
        lazy_pattern(r"[^\s:@/\"'=]{1,64}:[^\s/@\"']{1,200}@(?:tcp|unix)\("),
    ),
    (
        "a Secret of Kubernetes",
        ("kind",),
        lazy_pattern(r"kind(?<![^\s{,\"']kind)[\"']?[ \t]{0,40}:[ \t]{0,40}[\"']?Secret(?![A-Za-z])"),
    ),
)
"""What a text looks like, words in small letters of which it contains one, which are found quickly, and the pattern."""
_KEY_FILE = lazy_pattern(
    # PKCS #1, PKCS #8, SEC 1 and PKCS #12 in DER; keystores of Java; keytabs of Kerberos
    r"0(?:\x82[\s\S]{2}|\x81[\s\S]|[\x20-\x7f])\x02\x01[\x00\x01\x03]|\xfe\xed\xfe\xed|\xce\xce\xce\xce|\x05\x02\x00\x00"
)
"""The beginning of a binary file with private keys."""


# ---- names and values of settings ----

_NAME = lazy_pattern(
    r"(?i:passw|pass[_.-]?(?:code|key|phrase)|pwd|pw$|secret|token|authtok|credential|psk|cookie|salt|dsn|pin$|(?:^|[_.-])auth$"
    r"|pin[_-]?code|masterauth"
    r"|communit(?:y|ies)$|key[_.-]?data$"
    r"|(?:api|app|access|private|pre[_-]?shared|encrypt|encryption|sign|signing|master|session|auth|account|shared|host|server|ssh"
    r"|license|hmac|jwt|cluster|cipher|crypto?|admin|wep|webhook|aes|fernet|authentication)[_.-]?key)"
    # not `passive` or `bypass`, but `requirepass` and `dbPassEncoded`
    r"|(?<!(?i:by))(?<!(?i:com))(?<!(?i:sur))(?<!(?i:over))(?<!(?i:tres))(?i:pass)(?![a-z]|IV|ED|ES|EN|TH|NO|DB|ING|PORT)"
)
"""The names of settings whose values may be secrets."""
_WEAK_NAME = lazy_pattern(
    r"(?i:cookies?|salts?|dsn|pin|(?<!master)auth|(?:host|server|ssh|session|app|account|license|access|auth|cluster)[_.-]?key)$"
)
"""Names whose values are mostly not secrets."""
_OTHER_NAME = lazy_pattern(
    # sudoers(5), systemd.exec(5) and openssl's config(5)
    r"(?i:^nopasswd$|^(?:load|import)credential|credentialencrypted$|^challengepassword|^--no-)"
    # attributes such as a path or a limit
    r"|(?:[_.-]|[a-z](?=[A-Z])|[A-Z](?=[A-Z][a-z])|(?i:(?<=password)|(?<=passphrase)|(?<=passwd)|(?<=secret)|(?<=token)|(?<=cookie)))"
    r"(?i:files?|file_?names?|paths?|dir|directory|folder|maps?|(?:(?:min|max|warn)_?)?(?:days|age|len|length|min|max|size|ttl)"
    r"|(?:life|re)?_?time(?:out)?|expiry|expires|expiration|tries|attempts|retries|limit|count|policy|type|method|mode|command|cmd"
    r"|program|helper|prompts?|dialog|chat|provider|scheme|format|encoding|encryption|algorithms?|authentication|change|sync|reqd|strength"
    r"|history|rotation|required?|enabled?|disabled?|allowed|identity|name|url|uri|header|samesite|httponly|secure|field|column"
    r"|attribute|label|title|hint|warn|warning|complexity|interval|quality|reuse)$"
)
"""Names that contain one of these words and do not indicate a secret."""
_HARMLESS = lazy_pattern(
    r"(?i:(?:yes|no|true|false|on|off|none|null|nil|undefined|enabled?|disabled?|[~0-9#]|\*+|!+)"
    # references to values in other places
    r"|%[({][^\n]*|`[^\n]*|<[^<>\n]*>|\{\{[^\n]*|\{[\w.]*\}?|![a-z]+|%[a-z]|(?:process\.env|os\.environ|ENV\[|getenv\(|env\()[^\n]*|@[A-Z_]+@"
    # paths, and maps of paths; ports; the sources of nsswitch.conf(5)
    r"|<?(?:(?:file|env|exec|hash|lmdb|btree|cdb|texthash|regexp|pcre|proxy|unix):)?(?:~|\.\.?|/[\w.@%+-]+)(?:/[\w.@%+-]+)+/?"
    r"|[0-9]{1,5}/(?:tcp|udp|sctp|dccp)|(?:files|compat|db|sss|ldap|nis|winbind|systemd))"
    r"|(?:\$\{[\w.]+:?-?\}?)+|\$\{[\w.]+:?\?[^\n]*|\$\{\{[^\n]*|\$\([^\n]*|\$\$?[A-Z_][A-Z0-9_]*|\$[a-z]+_[a-z_]+|\$[0-9]|\$[A-Za-z_]+(?:/[\w.@%+-]+)+#?"
)
"""Values that are not secrets, whatever the setting's name is."""
_MIXED = lazy_pattern(
    r"(?=[\s\S]*[0-9])(?=[\s\S]*[A-Za-z])[\s\S]{8,}|(?=[\s\S]*[a-z][A-Z])[\s\S]{8,}|[0-9]{4,}"
)
"""Values that no one would use as a word."""
_LETTERS_AND_DIGITS = lazy_pattern(r"(?=\D*[0-9])(?=[^A-Za-z]*[A-Za-z])\S{8,}")
_RANDOM = lazy_pattern(
    r"(?=[^a-z]*+[a-z])(?=[^A-Z]*+[A-Z])(?=[^0-9]*+[0-9])[A-Za-z0-9+=_-][A-Za-z0-9+/=_-]{19,}+|[0-9A-Fa-f]{32,}+"
)
"""A value that looks random: long, with letters of both cases and digits, or hexadecimal."""


# ---- settings in texts ----

_STEMS = (
    "pass",
    "pwd",
    "pw",
    "secret",
    "token",
    "authtok",
    "credential",
    "psk",
    "cookie",
    "salt",
    "dsn",
    "auth",
    "pin",
    "key",
    "communit",
)
"""Parts of the names, of which each name that `_NAME` finds has one. Most texts have few of them."""
_NAME_LENGTH = 64
_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_NAME_REST = lazy_pattern(r"[A-Za-z0-9_.-]*+")
_COMMENT = lazy_pattern(r"[ \t]#[ \t]")
_VALUE = (
    r"(?:\"(?P<double>[^\"\n]{1,200})|'(?P<single>[^'\n]{1,200})"
    r"|(?P<plain><[^<>\n]{1,100}>?|[^\s\"',;<>)\]}\[][^\s\"',;>)\]]{0,200}))"
)
_SEPARATOR = r"(?:\[[\"']?[\w.-]{0,40}[\"']?\])?[\\\"'\])]{0,5}[ \t]{0,40}(?:=>|:=|[:=](?![:=~]))[ \t]{0,40}"
_ASSIGNED = lazy_pattern(
    rf"{_SEPARATOR}(?:[|>][+-]?[ \t]{{0,8}}\n[ \t]{{1,40}})?(?:\\{{0,3}}|(?:\"\"\"|'{{3}})\n?){_VALUE}"
)
"""`name = value`, `"name": value`, `['name'] => value`, `name['a'] = value`, a text of several lines, and JSON in a text."""
_LISTED = lazy_pattern(rf"{_SEPARATOR}(?:[\[(]{{1,2}}\s{{0,60}}|\r?\n[ \t]{{0,40}}-[ \t]{{1,40}}){_VALUE}")
"""`names = [value, …]`, and a list of YAML."""
_LIST_OF_NAMES = lazy_pattern(r"(?i:secrets?|credentials?)$")
"""Lists with such names contain mostly names of secrets."""
_ODD = lazy_pattern(rf"{_SEPARATOR}(?P<odd>[,;)\]}}][^\s\"'()\[\]{{}}=]{{7,200}})")
"""A value that begins with a character that usually ends one."""
_ARGUMENT = lazy_pattern(
    rf"[\"']?(?:[ \t]{{0,40}},\s{{0,60}}|\n[ \t]{{0,40}}-[ \t]{{1,40}}|[ \t]{{1,40}}){_VALUE}"
)
"""The value of an option on a command line, in a list, or in a list of YAML."""
_MARKUP = lazy_pattern(
    r"(?:[\"'][^<>\n]{0,40})?>\s{0,40}(?:<!\[CDATA\[)?(?P<plain>[^\s<>][^<>\n]{0,200})(?:\]\]>)?\s{0,40}</"
)
"""`<name>value</name>` and `<entry key="name">value</entry>`."""
_PAIR = lazy_pattern(
    rf"[\"']?[ \t]{{0,8}},?\s{{0,60}}[\"']?(?i:value)[\"']?[ \t]{{0,8}}[:=][ \t]{{0,8}}{_VALUE}"
)
_PAIR_NAME = lazy_pattern(r"(?i:name|key)[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?\Z")
"""`name: NAME` before `value: VALUE`."""
_CALL = lazy_pattern(rf"[\"']?[ \t]{{0,40}},[ \t]{{0,40}}(?:<<)?{_VALUE}")
_CALL_NAME = lazy_pattern(r"(?:\{|[A-Za-z]\([ \t]?[\"'])\Z")
"""`define('NAME', 'VALUE')` of PHP and `{NAME, <<"VALUE">>}` of Erlang."""
_PASSED_ON = lazy_pattern(r"(?i:(?:proxy|fastcgi|uwsgi|scgi|grpc|memcached)_?pass|auth-user-pass)$")
"""Directives of web servers that pass requests on, and the file of openvpn(8)."""
_WORDS = lazy_pattern(
    rf"[\"']?[ \t]{{1,40}}(?:--?[a-z]{{1,20}}[ \t]{{1,8}}|[0-9][ \t]{{1,8}})?(?![=:|&]){_VALUE}"
    r"[\"']?[ \t]{0,40}(?:[;\r\n#}]|\Z)"
)
"""A name and a value at the end of a line."""
_INNER_WORDS = lazy_pattern(
    r"[\"']?[ \t]{1,40}(?:[0-9][ \t]{1,8})?(?!(?:scram-|hmac-)?(?i:sha|md5|aes)|[a-z]{2,8}://)"
    r"(?P<inner>[^\s\"'=:|&,;<>()\[\]{}]{8,200})[ \t]"
)
"""A name and a value in a line that goes on."""


def find_sign(content: bytes, mode: int) -> str:
    """
    Return the reason why a file may contain a secret, such as "contains a private key". "" if there is no sign of a secret.

    Args:
        content: The file's content.
        mode: The file's permissions.
    """
    if not mode & PRIVATE_BITS:
        return f"is private (mode {mode:04o})"
    text = content.decode("latin-1")
    if _KEY_FILE.match(text):
        return "contains what looks like a private key"
    sign = _text_sign(text, has_comments=True)
    if not sign and _WIDE.search(text):
        sign = _text_sign(text.replace("\0", ""), has_comments=True)
    return sign


def find_setting_sign(name: str, value: object) -> str:
    """
    Return the reason why a setting may be a secret; see `find_sign`. "" if there is no sign of a secret.

    Args:
        name: The setting's name, with the names above it, such as `database.password`.
        value: The value. Values inside lists and mappings are checked, too.
    """
    if isinstance(value, dict):
        # `{name: password, value: …}` is a setting, too
        given = ".".join(str(value[key]) for key in ("name", "key") if isinstance(value.get(key), str))
        names = {key: given if key == "value" and given else str(key) for key in value}
        signs = (
            find_name_sign(str(key)) or find_setting_sign(f"{name}.{names[key]}", one)
            for key, one in value.items()
        )
        return next(filter(None, signs), "")
    if isinstance(value, list):
        # a command line: an option such as `--password` names the next element
        words = [one for one in value if isinstance(one, str)]
        line = _text_sign(f"{json.dumps(words)}\n{' '.join(words)}", has_comments=False)
        return line or next(filter(None, (find_setting_sign(name, one) for one in value)), "")
    if value is None or isinstance(value, bool) or value == "":
        return ""
    return _SETTING if _is_secret(name, str(value)) else find_name_sign(str(value))


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting with this name, or a name below it, may be a secret."""
    return bool(_NAME.search(name))


def find_name_sign(text: str) -> str:
    """Return the reason why a text may be a secret, whatever its name is; see `find_sign`. It may also be the name itself."""
    # text after a `#` is not a comment here
    return (
        "contains what looks like a key" if _RANDOM.fullmatch(text) else _text_sign(text, has_comments=False)
    )


def _is_secret(name: str, value: str, *, is_exact: bool = True) -> bool:
    """
    Whether a value may be a secret because of its name.

    Args:
        name, value: The setting.
        is_exact: Whether it is certain that these are the name and the value of a setting.
    """
    for found in _NAME.finditer(name):
        begin = name.rfind(".", 0, found.end() - 1) + 1
        part = name[begin:].partition(".")[0]
        if _OTHER_NAME.search(part):
            continue
        if _HARMLESS.fullmatch(value) and not _RANDOM.fullmatch(value[1:]):
            return False
        if is_exact or not _WEAK_NAME.search(name) or _MIXED.fullmatch(value):
            return True
    return False


def _text_sign(text: str, *, has_comments: bool) -> str:
    text = text.replace("\u0130", "I")  # the only character whose small letter has another length
    small = text.lower()
    for what, words, pattern in _SIGNS:
        if (not words or any(word in small for word in words)) and pattern.search(text):
            return f"contains what looks like {what}"
    return _SETTING if _has_setting(text, small, has_comments=has_comments) else ""


def _has_setting(text: str, small: str, *, has_comments: bool) -> bool:
    """Whether a setting whose name indicates a secret has a value, anywhere in a line. Comments are ignored."""
    stems = [stem for stem in _STEMS if stem in small]
    stem_of = re.compile("|".join(stems))
    at = line = line_end = comment = 0
    while stems and (found := stem_of.search(small, at)):
        stem, after = found.span()
        if stem >= line_end:
            line = text.rfind("\n", line_end, stem) + 1 or line_end
            line_end = text.find("\n", stem) % (len(text) + 1)
            comment = _comment_in(text, line, line_end) if has_comments else line_end
        if stem >= comment:
            at = line_end
            continue
        at = _NAME_REST.match(text, after).end()  # type: ignore[union-attr]
        begin = stem
        while begin > max(line, stem - _NAME_LENGTH) and text[begin - 1] in _NAME_CHARACTERS:
            begin -= 1
        if _is_given(text, begin, at):
            return True
    return False


def _comment_in(text: str, line: int, line_end: int) -> int:
    """Return where a comment begins in a line; its end if it has none."""
    if text[line : line + 80].lstrip(" \t")[:1] in ("#", ";"):
        return line
    found = _COMMENT.search(text, line, line_end)
    return found.start() if found is not None else line_end


def _is_given(text: str, begin: int, end: int) -> bool:
    """Whether the text has a secret value behind a name."""
    name, before = text[begin : min(end, begin + 2 * _NAME_LENGTH)], text[max(0, begin - 20) : begin]
    if not is_secret_name(name):
        return False
    found = _ASSIGNED.match(text, end) or _MARKUP.match(text, end)
    if found is None and name.startswith("-"):
        found = _ARGUMENT.match(text, end)
    if found is None and _PAIR_NAME.search(before):
        found = _PAIR.match(text, end)
    if found is None and _CALL_NAME.search(before):
        found = _CALL.match(text, end)
    if found is None and not before.endswith("/") and not _PASSED_ON.search(name):
        found = _WORDS.match(text, end)
    if found is not None:
        # a text inside a text ends with an escaped quote
        return _is_secret(name, found[found.lastgroup or 0].rstrip("\\"), is_exact=False)
    if (listed := _LISTED.match(text, end)) is not None:
        value = listed[listed.lastgroup or 0]
        is_name = value.endswith(":") or (_LIST_OF_NAMES.search(name) and not _MIXED.fullmatch(value))
        return not is_name and _is_secret(name, value, is_exact=False)
    found = _ODD.match(text, end) or _INNER_WORDS.match(text, end)
    if found is None or before.endswith("/") or _PASSED_ON.search(name):
        return False
    value = found[found.lastgroup or 0]
    return bool(_LETTERS_AND_DIGITS.fullmatch(value)) and _is_secret(name, value, is_exact=False)
