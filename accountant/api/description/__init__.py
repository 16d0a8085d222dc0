"""The description of the API: the OpenAPI document, its examples, and the page at /docs."""
