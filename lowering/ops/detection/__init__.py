"""Boxes, anchors, proposals, regions of interest, suppression."""
