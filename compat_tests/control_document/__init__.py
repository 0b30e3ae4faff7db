"""The control's OpenAPI document against its server, by Schemathesis."""
