//! OSU-style drivers, criterion benches and side-by-side runs against peers.
