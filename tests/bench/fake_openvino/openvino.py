"""As much of openvino as bench/peers/openvino_peer.py uses."""


class Type:
    i64 = "i64"


class Shape(tuple):
    pass


class Rows:
    """Stands for the array behind a tensor: tensor.data[:] = rows."""

    def __init__(self, shape):
        self.shape, self.rows = shape, None

    def __setitem__(self, index, rows):
        assert index == slice(None)
        assert (len(rows), len(rows[0])) == tuple(self.shape), (rows, self.shape)
        self.rows = rows


class Tensor:
    def __init__(self, element, shape):
        assert element == Type.i64
        self.data = Rows(shape)
