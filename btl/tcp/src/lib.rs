//! TCP byte transport over one or many interfaces and links.
