"""Pure cores of the group coordinator: classic protocol, consumer protocol (KIP-848), committed offsets."""
