"""What ``accountant doctor`` looks at. Each check yields findings and changes nothing."""
