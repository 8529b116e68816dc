"""What many cells cost the processes that everybody needs: controller, supervisor, gateway, runner."""
