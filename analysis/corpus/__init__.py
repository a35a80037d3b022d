"""The boundary corpus: small constructed sites, put through the analysis to notice any change of what it decides."""
