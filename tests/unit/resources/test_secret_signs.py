"""Files with signs of a secret."""

from __future__ import annotations

import pytest

from ccm_agent.resources.secret_signs import find_setting_sign, find_sign


@pytest.mark.parametrize(
    ("content", "sign"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "a private key"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "a private key"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "a private key"),
        ("AGE-SECRET-KEY-1QQQ", "a private key"),
        ("seed: SUAM" + "A" * 54, "a NATS seed"),
        ("key = AKIAIOSFODNN7EXAMPLE", "an access key"),
        ("ghp_" + "a" * 36, "an access key"),
        ("xoxb-1234-5678-abcd", "an access key"),
        ("AIza" + "a" * 35, "an access key"),
        ("Authorization: Bearer abcdefgh", "an access key"),
        ('proxy_set_header Authorization "Basic dXNlcjpwYXNz";', "an access key"),
        ("user:{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "a password hash"),
        ("pwd='hunter2'", "a password or token"),
        ("root:$6$salt1234$hash:19000::", "a password hash"),
        ("user:$apr1$abcd1234$x", "a password hash"),
        ("db = postgres://app:hunter2@db/app", "a URL with a password"),
        ("deb https://0a1b2c3d4e5f:@packages.example.net/x", "a URL with a password"),
        ("url = https://0a1b2c3d4e5f@packages.example.net/x", "a URL with a password"),
        ("password = hunter2", "a password or token"),
        (f"ExecStart=/usr/bin/docker run {'-v /a:/a ' * 30} -e DB_PASSWORD=hunter2", "a password or token"),
        ("ExecStart=/bin/sh -c 'cd /; TOKEN=hunter2 run'", "a password or token"),
        ("color = #fff password = hunter2", "a password or token"),
        ("  db_password: 'hunter2'", "a password or token"),
        ('{"api_key": "12345678"}', "a password or token"),
        ("requirepass hunter2", "a password or token"),
        ("SECRET_KEY_BASE=abcdef", "a password or token"),
        ("wpa-psk hunter22", "a password or token"),
        ("auth_token:hunter2", "a password or token"),
        (f"session: eyJ{'a' * 20}.eyJ{'b' * 20}.{'c' * 43}", "a token"),
        ("db.example.com:5432:*:app:hunter2", "a password of PostgreSQL"),
        ("*:*:*:postgres:hunter2", "a password of PostgreSQL"),
        # nslcd, sssd and LDAP
        ("bindpw secret", "a password or token"),
        ("rootpw abc", "a password or token"),
        ("ldap_default_authtok = secret", "a password or token"),
        ('AuthLDAPBindPassword "two words"', "a password or token"),
        # command lines
        ("ExecStart=/usr/bin/app --password x --port 80", "a password or token"),
        ("ExecStart=/usr/bin/app --api-token=x", "a password or token"),
        ("command: [redis-server, --requirepass, x]", "a password or token"),
        ('command: ["app", "-p", "hunter2"]', "a password"),
        ("args:\n  - -p\n  - hunter2", "a password"),
        ("args:\n  - --db-password\n  - x", "a password or token"),
        ("*/5 * * * * root mysqladmin -u root -phunter2 ping", "a password"),
        ("ExecStart=/usr/bin/sshpass -p hunter2 ssh a", "a password"),
        ("ExecStart=/usr/bin/curl -u bob:hunter2 https://a.example/", "a password"),
        ("ExecStart=/usr/bin/redis-cli -a hunter2 ping", "a password"),
        ("ExecStart=/usr/bin/ldapsearch -x -D cn=a -w hunter2", "a password"),
        ("ExecStart=/usr/bin/mosquitto_sub -u bob -P hunter2 -t a", "a password"),
        ("ExecStart=/usr/bin/smbclient //a/b -U bob%hunter2", "a password"),
        ("echo root:hunter2 | chpasswd", "a password"),
        ("CREATE USER 'bob' IDENTIFIED BY 'hunter2';", "a password"),
        # clients of databases, mail and the web
        ("machine a.example login bob password x", "a password"),
        ("machine a.example\n  login bob\n  password x", "a password"),
        ("[client]\npassword=x", "a password or token"),
        ("[smtp.example.com]:587 bob@example.com:hunter2", "a password of a mail server"),
        ("smtp.example.com bob:hunter2", "a password of a mail server"),
        ("example.com bob@example.com:hunter2", "a password of a mail server"),
        ("app:hunter2@tcp(db1:3306)/app", "a URL with a password"),
        ("redis://:hunter2@cache:6379/0", "a URL with a password"),
        ("AMQP://app:hunter2@mq/", "a URL with a password"),
        # hashes
        ("bob:rqXexS6ZhobKA", "a password hash"),
        ("bob:files:0123456789abcdef0123456789abcdef", "a password hash"),
        ("bob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "a password hash"),
        ("pw: pbkdf2_sha256$600000$salt$hash", "a password hash"),
        ('"app" "SCRAM-SHA-256$4096:c2FsdA==$a:b"', "a password hash"),
        ('"app" "md50123456789abcdef0123456789abcdef"', "a password hash"),
        ("*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19", "a password hash"),
        ("password_pbkdf2 root grub.pbkdf2.sha512.10000.AB", "a password hash"),
        (f"bob:1000:{'X' * 32}:{'A1' * 16}:[U  ]:LCT-1:", "a password of PostgreSQL"),
        # networks
        ("PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=", "a password or token"),
        ("PrivateKey = /Anz5TF/lXXJte14tji3zlMNq/hd2rYUIgJBgB3fBmk=", "a password or token"),
        ("PresharedKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=", "a password or token"),
        ('  psk="hunter2"', "a password or token"),
        ("wep_key0=1234567890", "a password or token"),
        ("rocommunity hunter2 10.0.0.0/8", "a password"),
        ("snmp-server community hunter2 RO", "a password"),
        ("com2sec local default hunter2", "a password"),
        ("createUser bob SHA hunter2 AES", "a password"),
        (": PSK hunter2", "a password"),
        ('bob : EAP "x"', "a password"),
        (" neighbor 192.0.2.1 password x", "a password or token"),
        (" enable password 7 0822455D0A16", "a password or token"),
        ("stats auth bob:x", "a password"),
        ('key "a" { algorithm hmac-sha256; secret "c2VjcmV0"; };', "a password or token"),
        # tokens of services
        ("x: github_pat_11AAAAAAA0aaaaaaaaaaaa_b", "an access key"),
        ("x: glpat-aaaaaaaaaaaaaaaaaaaa", "an access key"),
        ("x: sk_live_aaaaaaaaaaaaaaaa", "an access key"),
        ("https://hooks.slack.com/services/T0000000/B000/XXXX", "an access key"),
        ("DefaultEndpointsProtocol=https;AccountKey=abcdefghijklmnop==", "an access key"),
        ("Authorization: token abcdefgh", "an access key"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "a password or token"),
        ('"auths": {"r.example": {"auth": "dXNlcjpwYXNz"}}', "a password or token"),
        ("    token: abcdef", "a password or token"),
        ("    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJ", "a private key"),
        ("    client-key-data: aGVsbG8=", "a password or token"),
        ("kind: Secret\ndata:\n  a: aHVudGVyMg==", "a Secret of Kubernetes"),
        # keys
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "a private key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519", "a private key"),
        ("-----BEGIN OpenVPN Static key V1-----", "a private key"),
        ("untrusted comment: signify secret key", "a private key"),
        ("Private-key-format: v1.3", "a private key"),
        (f'{{"kty": "OKP", "d": "{"a" * 43}"}}', "a private key"),
        # applications
        ("default_pass = x", "a password or token"),
        ('{default_pass, <<"hunter2">>}', "a password or token"),
        ("define( 'DB_PASSWORD', 'x y' );", "a password or token"),
        ("$databases['default']['default']['password'] = 'x';", "a password or token"),
        ("  'password' => 'x',", "a password or token"),
        ("secret_key_base: abc", "a password or token"),
        ("spring.datasource.password=x", "a password or token"),
        ("<password>x</password>", "a password or token"),
        ('<entry key="password">x</entry>', "a password or token"),
        ('<property name="password" value="x"/>', "a password or token"),
        ("- name: DB_PASSWORD\n  value: x", "a password or token"),
        ("password: |\n  x", "a password or token"),
        ("SetEnv DB_PASSWORD x", "a password or token"),
        ("fastcgi_param DB_PASSWORD x;", "a password or token"),
        ("d-i passwd/root-password password x", "a password or token"),
        ("password = $ecret", "a password or token"),
        ("password = /x", "a password or token"),
        ("//a/b /mnt cifs username=bob,password=x 0 0", "a password or token"),
        ("APP_KEY=base64:c2VjcmV0c2VjcmV0", "a password or token"),
        # names that contain an innocent word, and references with a default
        ("bypass_token = x", "a password or token"),
        ("http_proxy_pass = x", "a password or token"),
        ("no-reply-password = x", "a password or token"),
        ("spring.datasource.password=${DB_PASSWORD:x}", "a password or token"),
        ("password = ${DB_PASSWORD:-x}", "a password or token"),
        ("AES_KEY=abc", "a password or token"),
        ("masterauth x", "a password or token"),
        # lists, texts in texts, several lines and odd values
        ("tokens: [abc, def]", "a password or token"),
        ("PASSWORDS = [\n  'x',\n]", "a password or token"),
        ("tokens:\n  - x", "a password or token"),
        ("secrets:\n  - abcd1234", "a password or token"),
        ('exec: "{\\"password\\": \\"x\\"}"', "a password or token"),
        ('password = """\nx"""', "a password or token"),
        ("password['db'] = 'x'", "a password or token"),
        ("<password>\n  x\n</password>", "a password or token"),
        ("<password><![CDATA[x]]></password>", "a password or token"),
        ("password = ,abcd1234", "a password or token"),
        ("neighbor 192.0.2.1 password hunter21 hold 3", "a password or token"),
        ("tacacs-server key x", "a password"),
        (" ip ospf message-digest-key 1 md5 x", "a password"),
        ("bob:{PLAIN}x", "a password hash"),
        ("bob:rqXexS6ZhobKA\r", "a password hash"),
        ("bob:files:0123456789abcdef0123456789abcdef\r", "a password hash"),
        (f"https://api.telegram.org/bot123456789:AA{'a' * 33}/send", "an access key"),
        # command lines
        ("ipmitool -H a -U ADMIN -P x power on", "a password"),
        ("docker login -u bob -p x registry.example", "a password"),
        ("chpasswd <<< 'root:x'", "a password"),
        ("chpasswd <<EOF\nroot:x\nEOF", "a password"),
        ("echo x | kinit admin", "a password"),
        ("echo x | sudo -S reboot", "a password"),
        ("args:\r\n- -p\r\n- x", "a password"),
    ],
)
def test_a_sign_of_a_secret_is_found(content: str, sign: str) -> None:
    assert find_sign(f"# a comment\n{content}\n".encode(), 0o644) == f"contains what looks like {sign}"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_sign_in_utf_16_is_found(encoding: str) -> None:
    mark = {"utf-16": "", "utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}[encoding]
    content = f"{mark}[server]\r\npassword = hunter2\r\n".encode(encoding)

    assert find_sign(content, 0o644) == "contains what looks like a password or token"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "listen 127.0.0.1:8080\n10.0.0.1:80:10.0.0.2:8080\n",
        "root:x:0:0:root:/root:/bin/bash\n",
        "eyJhbGciOiJub25lIn0\n",
        "server { listen 80; root /var/www; }\n",
        "-----BEGIN CERTIFICATE-----\nMIIC\n",
        "# password = hunter2\n",
        "a = b  # password = hunter2\n   ; password = hunter2\n",
        "PasswordAuthentication no\n",
        "see https://example.org/ and mail a.user@example.org\n",
        "https://${TOKEN_OF_USER}@example.org/\n",
        "ssl_certificate_key /etc/ssl/private/site.pem;\n",
        "password = ${DB_PASSWORD}\n",
        "password = \n",
        "url = https://example.org/a:b@c\n",
        # PAM, sudo, nsswitch, login, sshd and services
        "password requisite pam_pwquality.so retry=3\npassword [success=1 default=ignore] pam_unix.so obscure\n",
        "password include system-auth\n@include common-password\n",
        "%admin ALL=(ALL) NOPASSWD: ALL\nbob ALL = NOPASSWD: /usr/bin/apt\nDefaults passwd_tries=3, passwd_timeout=0\n",
        "passwd:         files systemd\npasswd: compat\n",
        "PASS_MAX_DAYS\t99999\nPASS_MIN_DAYS 0\nPASS_WARN_AGE\t7\n",
        "PermitEmptyPasswords no\nPermitRootLogin prohibit-password\nAuthenticationMethods publickey,password\n",
        "HostKey /etc/ssh/ssh_host_rsa_key\nNumberOfPasswordPrompts 3\n",
        "kpasswd\t\t464/tcp\nkpasswd\t\t464/udp\n",
        # web servers
        "proxy_pass http://backend;\nfastcgi_pass unix:/run/php/php-fpm.sock;\nProxyPass /a http://127.0.0.1:8080/\n",
        'auth_basic "Restricted";\nauth_basic_user_file /etc/nginx/htpasswd;\nproxy_cookie_path / "/; Secure";\n',
        "proxy_set_header X-Token $http_x_token;\nssl_password_file /etc/nginx/pass;\n",
        "AuthType Basic\nAuthUserFile /etc/apache2/htpasswd\nSSLPassPhraseDialog exec:/usr/share/apache2/ask-for-passphrase\n",
        "session.cookie_lifetime = 0\nsession.use_cookies = 1\nsession.cookie_path = /\nmysqli.default_pw =\n",
        # mail, databases, files and name servers
        "smtp_sasl_password_maps = hash:/etc/postfix/sasl_passwd\nexample.com smtp:mail.example.com\n",
        "ssl_key = </etc/dovecot/private/dovecot.pem\npassdb {\n  driver = pam\n}\nargs = /etc/dovecot/passwd\n",
        "unix password sync = yes\npasswd program = /usr/bin/passwd %u\npassdb backend = tdbsam\npam password change = yes\n"
        "passwd chat = *Enter\\snew\\s*\\spassword:* %n\\n .\n",
        "password_encryption = scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\nlocal all all password\n",
        'key "rndc-key" { algorithm hmac-sha256; };\ninclude "/etc/bind/rndc.key";\ntrust-anchors { };\n',
        "rocommunity public default -V systemonly\n",
        # units and command lines
        "LoadCredential=db:/etc/credstore/db\nImportCredential=passwd.hashed\n",
        "ExecStart=/usr/bin/app --token-file /etc/app/token --password-file=/run/app/password --no-password\n",
        'command: ["docker", "run", "-p", "8080:80", "-p", "127.0.0.1:53:53/udp"]\nargs: ["mkdir", "-p", "/srv/a"]\n',
        "ExecStart=/usr/bin/ssh -p 22 a.example\nExecStart=/usr/bin/curl -u ${USER}:${PASS} https://a.example/\n",
        "PublicKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\nprivate_key = /etc/app/key.pem\n",
        "[credential]\n  helper = store\ncredsStore: desktop\n",
        "tokens: {}\nsecret:\npassword: !vault |\n  $ANSIBLE_VAULT\npassword: <password>\ntoken: {{ token }}\n",
        "- name: DB_PASSWORD\n  valueFrom: a\nkind: SecretProviderClass\nkind: ConfigMap\n",
        "TlsPSKFile=/etc/zabbix/psk\nTLSPSKIdentity=agent\n",
        "api_token = %(ENV_TOKEN)s\nsecret = $APP_SECRET\nsecret = $(cat /run/a)\npassword = `cat /run/a`\n",
        "password = ${A}${B}\npassword: ${{ secrets.X }}\npassword=${X:?must be set}\npassword=${X:-}\n",
        "auth-user-pass login.txt\nPASSDB=a\nBYPASS=10\n",
        "KEYMAP=us\nkeyboard: pc105\nkeepalive: 10\nmonkey = banana\ncompass: north\n",
        "bypass = 10.0.0.1\npassive = 40000\nPASSIVE_PORTS=40000\npassenger_root /usr/share/passenger;\n",
        "auth required pam_unix.so\nauth = plain\nauth: true\nauth_mechanisms = plain login\n",
        "saltstack: true\nroot:x:0:0:root:/root:/bin/bash\nusers:x:100:\nbob:100000:65536\nbob:!:19000:0:99999:7:::\n",
        "secrets:\n  - db_password\nsecrets: [db_password]\nimagePullSecrets:\n  - name: registry\ntokens: []\n",
        "docker login -u bob --password-stdin\nipmitool -E power on\nchpasswd <<EOF\n$USER:$PASS\nEOF\n",
        "echo $PASS | sudo -S reboot\necho text | sudo tee /a\npassword sufficient pam_unix.so sha512 shadow\n",
        'exec: "{\\"password\\": \\"${PASS}\\"}"\n<password>\n  ${PASS}\n</password>\n',
        "\xff\xfe\x00",
    ],
)
def test_usual_configuration_has_none(content: str) -> None:
    assert find_sign(content.encode("latin-1"), 0o644) == ""


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("before", ["[server]\r\nhost = db1", "# настройки " * 50])
def test_a_sign_in_utf_16_without_a_mark_is_found(encoding: str, before: str) -> None:
    content = f"{before}\r\npassword = hunter2\r\n{'a = b' * 50}\r\n".encode(encoding)

    assert find_sign(content, 0o644) == "contains what looks like a password or token"


def test_what_others_cannot_read_is_private() -> None:
    assert find_sign(b"plain", 0o640) == "is private (mode 0640)"


def test_a_large_line_is_searched_in_bounded_time() -> None:
    # a pattern that backtracks would not come to an end
    assert find_sign(b"pass" * 500_000, 0o644) == ""
    assert find_sign(b"password=" * 200_000, 0o644) != ""
    assert find_sign(b"#" + b"password=hunter2 " * 200_000, 0o644) == ""
    assert find_sign(b"#password=hunter2\n" * 100_000, 0o644) == ""
    assert find_sign(b"x # " + b"password=hunter2 " * 200_000, 0o644) == ""
    assert find_sign(b"a://" * 500_000, 0o644) == ""
    assert find_sign(b"https://aaaaaaaa" * 100_000, 0o644) == ""
    assert find_sign(b"\n" * 2_000_000, 0o644) == ""
    assert find_sign(b"eyJaaaaaaaaa." * 200_000, 0o644) == ""
    assert find_sign(b"a:123456" * 400_000, 0o644) == ""
    # names without a value, often in one line
    assert find_sign(b"token, " * 20_000, 0o644) == ""
    assert find_sign(b"password_" * 20_000, 0o644) == ""
    assert find_sign(b"password: ${A} " * 20_000, 0o644) == ""
    assert find_sign(b"{password, " * 20_000, 0o644) == ""
    assert find_sign(b"--password\n" * 20_000, 0o644) == ""
    assert find_sign(b"curl -u " * 20_000, 0o644) == ""
    assert find_sign(b"password: \n- " * 20_000, 0o644) == ""
    assert find_sign(b"<password>\n" * 20_000, 0o644) == ""
    assert find_sign(b"chpasswd <<a\n" * 20_000, 0o644) == ""


TOKEN = "contains what looks like a password or token"
KEY = "contains what looks like a key"


@pytest.mark.parametrize(
    ("name", "value", "sign"),
    [
        ("port", 8080, ""),
        ("host", "db.example.net", ""),
        ("password", "", ""),
        ("token", None, ""),
        ("use_password", True, ""),
        ("path", "/usr/local/lib/Python3/SitePackages", ""),
        ("DB_PASS", "abc", TOKEN),
        ("PGPASSWORD", "/x9", TOKEN),
        ("pin", 1234, TOKEN),
        ("secrets", {"a": {"b": "x"}}, TOKEN),
        ("users", [{"name": "a"}, {"name": "b", "pwd": "x"}], TOKEN),
        ("SESSION_KEY", "x", TOKEN),
        ("npm._auth", "eDp5", TOKEN),
        ("value", "Zm9vYmFyQmF6MTIzNDU2Nzg5", KEY),
        ("value", "0123456789abcdef" * 2, KEY),
        ("url", "https://a:hunter2@b.example", "contains what looks like a URL with a password"),
        ("args", ["--verbose", "--password=hunter2"], TOKEN),
        ("args", "# password=hunter2", TOKEN),
        ("args", ["--password", "hunter2"], TOKEN),
        ("args", ["--port", "8080"], ""),
        ("args", ["-p", "hunter2"], "contains what looks like a password"),
        ("args", ["-p", "8080:80"], ""),
        ("args", ["mysqladmin", "-u", "root", "-phunter2", "ping"], "contains what looks like a password"),
        ("args", ["curl", "-u", "bob:hunter2"], "contains what looks like a password"),
        ("password_file", "/etc/app/password", ""),
        ("password", "/etc/app/password", ""),
        ("secrets", {"max": "hunter2", "name": {"file": "x"}}, TOKEN),
        ("proxy_pass", "hunter2", TOKEN),
        ("\u0130PASSWORD", "x", TOKEN),
        ("text", "\u0130\nPASSWORD=x", TOKEN),
        ("env", [{"name": "DB_PASSWORD", "value": "hunter2"}], TOKEN),
        ("env", [{"name": "DB_HOST", "value": "db1"}], ""),
        ("bindpw", "hunter2", TOKEN),
        ("clients", {"ghp_" + "a1" * 18: "bob"}, "contains what looks like an access key"),
        ("lone", "\ud800", ""),
    ],
)
def test_a_setting_is_judged_by_its_name_and_value(name: str, value: object, sign: str) -> None:
    assert find_setting_sign(name, value) == sign


def test_each_part_of_a_nested_value_is_judged_once() -> None:
    value: object = "x"
    for _ in range(100):
        value = {"name": "a", "key": "b", "value": value}

    # a part that is judged twice at each level would not come to an end
    assert find_setting_sign("env", value) == ""
