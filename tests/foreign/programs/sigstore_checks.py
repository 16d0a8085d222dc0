"""sigstore (Python) verifies our checkpoints and receipts, with the code for Rekor's."""

import base64
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from reading import CHECKPOINTS, keys_of, receipts
from sigstore._internal.merkle import verify_merkle_inclusion
from sigstore._internal.rekor.checkpoint import SignedCheckpoint, verify_checkpoint
from sigstore._internal.trust import Keyring
from sigstore._utils import KeyID
from sigstore_models.common.v1 import PublicKey, PublicKeyDetails


def keyring(key: str) -> tuple[Keyring, KeyID]:
    """A keyring of one of our keys, and the key id that C2SP gives it."""
    _, identity, data = key.split("+", 2)
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(data)[1:])
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    stated = PublicKey(raw_bytes=base64.b64encode(der), key_details=PublicKeyDetails.PKIX_ED25519)
    return Keyring([stated]), KeyID(bytes.fromhex(identity))


def main() -> None:
    """Every signature of every checkpoint, and every receipt."""
    for checkpoint in CHECKPOINTS:
        read = SignedCheckpoint.from_text(checkpoint)
        assert keys_of(checkpoint)
        for key in keys_of(checkpoint):
            read.signed_note.verify(*keyring(key))
    for receipt in receipts():
        head = SignedCheckpoint.from_text(receipt.checkpoint).checkpoint
        proof = SimpleNamespace(
            log_index=receipt.index,
            tree_size=head.log_size,
            root_hash=bytes.fromhex(head.log_hash),
            hashes=receipt.proof,
            checkpoint=SimpleNamespace(envelope=receipt.checkpoint),
        )
        keys, identity = keyring(keys_of(receipt.checkpoint)[-1])
        inner = SimpleNamespace(
            inclusion_proof=proof,
            canonicalized_body=receipt.entry,
            log_id=SimpleNamespace(key_id=identity),
        )
        entry = SimpleNamespace(_inner=inner)
        verify_checkpoint(keys, entry)
        verify_merkle_inclusion(entry)
    print(f"{len(CHECKPOINTS)} checkpoints, {len(receipts())} receipts")  # noqa: T201


main()
