//! Point-to-point messaging layer: matching and protocols (OB1 over byte transports).
