//! Tag-matching transports.
