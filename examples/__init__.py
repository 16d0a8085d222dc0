"""Programs that use accountant as its users do. The package never imports them."""
