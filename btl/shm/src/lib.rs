//! Shared-memory byte transport between processes of one host.
