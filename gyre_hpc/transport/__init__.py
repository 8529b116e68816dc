"""Between cells: snapshot store, dynamic process groups, hand-in of sums. One interface each, one file per kind."""
