"""Join tokens, requests and answers: what the signatures prove, and what is refused."""

from __future__ import annotations

import base64
import zlib

import msgspec
import pytest

from ccm_agent.bus.access.credentials import (
    new_authority,
    new_root,
    new_user,
    public_key,
    scoped_jwt,
    token_credentials,
)
from ccm_agent.bus.signatures.join import (
    TOKEN_PREFIX,
    JoinError,
    JoinToken,
    SignedRequest,
    fingerprint,
    new_token_id,
    read_request,
    read_token,
    sign_answer,
    sign_request,
    verify_answer,
    verify_request,
)
from ccm_agent.bus.signatures.node_state import StateReader
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, SignatureKind, SigningKey
from ccm_agent.bus.signatures.trust import (
    Signer,
    SignersList,
    allow_certifier,
    certify_node,
    read_certificate,
    read_signers,
    sign_signers,
)
from ccm_agent.model.errors import InputError
from ccm_agent.model.records.join import JOIN_ANSWER, JoinAnswer, JoinState
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.trust.authors import Authors

NOW = 1_800_000_000_000
DAY = 86_400_000
AUTHORITY = new_authority()


class World:
    """A fleet's root key, a key that may certify nodes, a token and a node."""

    def __init__(self) -> None:
        self.root = SigningKey(new_root())
        self.certifier = SigningKey(new_root())
        self.permission = allow_certifier(
            self.root, self.certifier.public_key, issued_ms=NOW, expires_ms=NOW + 365 * DAY
        )
        made = token_credentials(AUTHORITY.join, new_token_id(), NOW // 1000 + 3600, [])
        self.token = JoinToken(
            servers=("tls://nats1.example.net:4222",),
            ca="",
            root=self.root.public_key,
            jwt=made.jwt,
            seed=made.seed,
        )
        self.token_key = made.public_key
        self.seed = new_user()
        self.node = SigningKey(self.seed)

    def request(self, name: str = "web1") -> SignedRequest:
        return sign_request(self.node, name, NOW, "1.0.0", token=self.token)

    def joined(self, request: SignedRequest, name: str = "web1", key: str = "") -> JoinAnswer:
        key = key or self.node.public_key
        jwt = scoped_jwt(
            AUTHORITY.node_signer, public_key(AUTHORITY.nodes), name, key, [], NOW // 1000 + 90 * 86_400
        )
        signed = sign_signers(self.root, SignersList(number=1, issued=NOW))
        return JoinAnswer(
            protocol=JOIN_ANSWER,
            state=JoinState.JOINED,
            request=request.digest,
            jwt=jwt,
            certificate=self.certificate(name, key),
            signers=signed.body,
            signature=signed.signature,
        )

    def certificate(self, name: str, key: str, days: int = 90) -> str:
        return certify_node(
            self.certifier, name, key, issued_ms=NOW, expires_ms=NOW + days * DAY, by=self.permission
        )

    def verify(
        self, answer: JoinAnswer, request: SignedRequest, signer: SigningKey | None = None, by: str = ""
    ) -> JoinAnswer:
        signer = signer or self.certifier
        body, headers = sign_answer(signer, by or self.permission, request.subject, answer, NOW)
        header = headers[SIGNATURE_HEADER]
        root = self.root.public_key
        return verify_answer(body, header, request, "web1", self.node.public_key, root, now_ms=NOW)


@pytest.fixture
def world() -> World:
    return World()


def test_a_token_survives_its_text(world: World) -> None:
    again = read_token(f"  {world.token.as_text()}\n")

    assert (again.servers, again.root, again.jwt, again.seed.reveal(), again.id) == (
        world.token.servers,
        world.token.root,
        world.token.jwt,
        world.token.seed.reveal(),
        world.token.id,
    )
    assert again.expires == NOW // 1000 + 3600


def _packed(document: object) -> str:
    raw = zlib.compress(msgspec.json.encode(document))
    return TOKEN_PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("ccm1-", id="only the prefix"),
        pytest.param("ccm1-***", id="other characters"),
        pytest.param(TOKEN_PREFIX + "x" * 50_000, id="too long"),
        pytest.param(_packed([1]), id="another document"),
        pytest.param(_packed("x" * 10_000_000), id="a bomb"),
        pytest.param(_packed({"servers": [], "root": "", "jwt": "", "seed": ""}), id="empty fields"),
    ],
)
def test_a_damaged_token_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InputError, match="join token") as found:
        read_token(text)

    assert text[5:] == "" or text[5:] not in str(found.value)


def test_a_token_that_was_cut_off_is_refused(world: World) -> None:
    with pytest.raises(InputError, match="cut off"):
        read_token(world.token.as_text()[:-20])


def test_a_request_is_signed_by_the_node_and_by_the_token(world: World) -> None:
    signed = world.request()
    request = read_request(signed.subject, signed.body)

    verify_request(request, signed.subject, signed.body, signed.headers, world.token_key, now_ms=NOW)

    assert (request.name, request.key, request.token) == ("web1", world.node.public_key, world.token.id)
    assert world.seed.reveal().encode() not in signed.body


@pytest.mark.parametrize("missing", ["Ccm-Signature", "Ccm-Token-Signature"])
def test_a_request_without_one_of_its_signatures_is_refused(world: World, missing: str) -> None:
    signed = world.request()
    request = read_request(signed.subject, signed.body)
    headers = {name: value for name, value in signed.headers.items() if name != missing}

    with pytest.raises(SignatureError):
        verify_request(request, signed.subject, signed.body, headers, world.token_key, now_ms=NOW)


def test_a_request_that_another_token_signed_is_refused(world: World) -> None:
    signed, other = world.request(), World()
    request = read_request(signed.subject, signed.body)

    with pytest.raises(SignatureError, match="another key"):
        verify_request(request, signed.subject, signed.body, signed.headers, other.token_key, now_ms=NOW)


def test_a_request_on_another_subject_is_malformed(world: World) -> None:
    with pytest.raises(JoinError) as found:
        read_request("io.choria.ccm.v1.join.request.join-aaaaaaaaaaaaaaaa", world.request().body)

    assert found.value.code == "join.malformed"


def test_the_answer_of_the_fleet_is_accepted(world: World) -> None:
    request = world.request()

    assert world.verify(world.joined(request), request).state is JoinState.JOINED


def test_an_answer_of_another_fleet_is_refused(world: World) -> None:
    request, other = world.request(), World()

    with pytest.raises(SignatureError, match="not the fleet's root key"):
        world.verify(world.joined(request), request, other.certifier, other.permission)
    with pytest.raises(SignatureError, match="not the fleet's root key"):
        other.verify(world.joined(request), request, world.certifier, world.permission)


def test_an_answer_with_the_permission_of_another_key_is_refused(world: World) -> None:
    request = world.request()

    with pytest.raises(SignatureError, match="changed after signing"):
        world.verify(world.joined(request), request, SigningKey(new_root()))


def test_an_answer_to_another_request_is_refused(world: World) -> None:
    with pytest.raises(SignatureError, match="another request"):
        world.verify(world.joined(world.request()), world.request())


def test_an_answer_with_credentials_of_another_node_is_refused(world: World) -> None:
    request = world.request()

    for answer in (
        world.joined(request, name="web2"),
        world.joined(request, key=SigningKey(new_user()).public_key),
    ):
        with pytest.raises(SignatureError, match="another node"):
            world.verify(answer, request)


def test_a_certificate_of_an_allowed_key_names_a_node(world: World) -> None:
    certificate = world.certificate("web1", world.node.public_key)

    claims = read_certificate(certificate, "web1", world.node.public_key, world.root.public_key)

    assert (claims.key, claims.expires) == (world.certifier.public_key, NOW + 90 * DAY)


def test_an_allowed_key_certifies_no_longer_than_it_may(world: World) -> None:
    key, root = world.node.public_key, world.root.public_key
    forever = certify_node(world.certifier, "web1", key, issued_ms=NOW, by=world.permission)

    for certificate in (forever, world.certificate("web1", key, days=366)):
        with pytest.raises(SignatureError, match="valid for longer"):
            read_certificate(certificate, "web1", key, root)


def test_an_allowed_key_allows_no_other_key(world: World) -> None:
    third, key = SigningKey(new_root()), world.node.public_key
    passed_on = allow_certifier(world.certifier, third.public_key, issued_ms=NOW, expires_ms=NOW + 90 * DAY)
    certificate = certify_node(third, "web1", key, issued_ms=NOW, expires_ms=NOW + DAY, by=passed_on)

    with pytest.raises(SignatureError, match="not the fleet's root key"):
        read_certificate(certificate, "web1", key, world.root.public_key)


def test_an_allowed_key_names_no_operator(world: World) -> None:
    signer = Signer(name="eve", key=world.node.public_key, apply=(">",))
    made = sign_signers(world.certifier, SignersList(number=9, issued=NOW, signers=(signer,)))

    with pytest.raises(SignatureError, match="not the fleet's root key"):
        read_signers(made.body.encode(), made.signature, world.root.public_key, now_ms=NOW)
    own = sign_signers(world.root, SignersList(number=9, issued=NOW, signers=(signer,)))
    assert read_signers(own.body.encode(), own.signature, world.root.public_key, now_ms=NOW).number == 9


def test_what_a_node_signs_is_refused_after_the_key_that_certified_it_was_revoked(world: World) -> None:
    body, subject = b"x", "$KV.CCM_NODES.presence.web1"
    signature = world.node.sign(SignatureKind.STATE, subject, body, issued_ms=NOW)
    certificate = world.certificate("web1", world.node.public_key)
    signers = SignersList(number=1, issued=NOW)
    stolen = SignersList(number=2, issued=NOW, revoked_nodes=(world.certifier.public_key,))

    def read(known: SignersList) -> str:
        reader = StateReader(world.root.public_key, known, lambda: NOW)
        return reader.read_signer(subject, body, signature, certificate)

    assert read(signers) == "web1"
    with pytest.raises(SignatureError, match="which was revoked"):
        read(stolen)
    authors = Authors(world.root.public_key, stolen, NOW)
    authors.learn("web1", world.node.public_key, certificate)
    assert not authors.knows("web1", world.node.public_key)


def test_the_signature_of_a_request_is_no_certificate(world: World) -> None:
    request = world.request()
    key = world.node.public_key

    with pytest.raises(SignatureError, match=f"for a {SignatureKind.JOIN}"):
        read_certificate(request.headers[SIGNATURE_HEADER], "web1", key, world.root.public_key)


def test_a_fingerprint_tells_two_keys_apart(world: World) -> None:
    mine, other = fingerprint(world.node.public_key), fingerprint(SigningKey(new_user()).public_key)

    assert mine != other
    assert len(mine.replace("-", "")) == 32


def test_a_token_does_not_show_its_seed(world: World) -> None:
    assert world.token.seed.reveal() not in repr(world.token)
    assert isinstance(world.token.seed, Secret)
