"""Gateway shell: harness protocols over HTTP, tokens, engines and the journal around one GatewayMachine."""
