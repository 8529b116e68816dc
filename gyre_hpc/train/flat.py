"""Parameters in one flat buffer, with views of it by name: one sum, one optimizer step, one reduce for all of them."""

import torch


class FlatParameters:
    """Owns `flat` [num_parameters]; `views` are leaves with gradients, by Hugging Face name, that share its memory."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> None:
        self.shapes = shapes
        self.flat = torch.zeros(sum(torch.Size(shape).numel() for shape in shapes.values()), dtype=dtype)
        self.views = {name: view.detach().requires_grad_() for name, view in self.split(self.flat).items()}

    def split(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of `flat` [num_parameters] by name, in the parameters' shapes."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            size = torch.Size(shape).numel()
            views[name] = flat[start : start + size].view(shape)
            start += size
        return views

    def take(self, tensors: dict[str, torch.Tensor]) -> None:
        """Copy `tensors` in. Raises ValueError when names or shapes are not these."""
        if set(tensors) != set(self.shapes):
            wrong = sorted(set(tensors) ^ set(self.shapes))
            raise ValueError(f"parameters do not fit the model: {wrong[0]!r} is on one side only")
        for name, target in self.split(self.flat).items():
            if tensors[name].shape != target.shape:
                raise ValueError(f"parameter {name!r} has shape {tuple(tensors[name].shape)}, expected {tuple(target.shape)}")
            target.copy_(tensors[name])

    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters by name, without gradients; views."""
        return self.split(self.flat)
