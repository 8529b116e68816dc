"""Sans-I/O state machines: the only place of protocol decisions (batch, cell, call, execution, supervision)."""
