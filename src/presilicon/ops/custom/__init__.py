"""Custom operators: functions that replace or extend torch's, compiled, differentiated and priced from their source."""
